//! `tcache.*`: manual caches.

use crate::api::threads;
use crate::ctl::{Access, Answer, At, Leaf, Mode, Request, See, Special, name};

pub(in crate::ctl) fn names(see: See<'_>) {
    see(&[
        name(
            "create",
            Leaf::Special(Special {
                c_type: "unsigned",
                mode: Mode::ReadOnly,
                serve: create,
            }),
            "Makes a cache that belongs to no thread and tells its number, for `MALLOCX_TCACHE`; one thread \
         at a time may use it.",
        ),
        name(
            "flush",
            Leaf::Unsigned(Access::Write(|_, number| {
                Ok(threads::flush_cache_by_hand(number)?)
            })),
            "Gives back what the cache of this number holds; EFAULT when there is none.",
        ),
        name(
            "destroy",
            Leaf::Unsigned(Access::Write(|_, number| {
                Ok(threads::destroy_cache(number)?)
            })),
            "As `tcache.flush`, and gives the cache up: its number is free for another.",
        ),
    ]);
}

/// Makes a cache only if the caller can be told its number.
fn create(_: &At<'_>, request: &mut Request) -> Answer<()> {
    request.allow(Mode::ReadOnly)?;
    request.must_read::<u32>()?;
    request.answer(threads::create_cache()?)
}
