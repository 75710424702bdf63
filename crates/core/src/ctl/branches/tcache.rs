//! `tcache.*`: manual caches.

use crate::api::threads;
use crate::ctl::{Access, At, CtlResult, Leaf, Mode, Request, See, Special, name};

pub(in crate::ctl) fn names(see: See<'_>) {
    see(&[
        name(
            "create",
            Leaf::Special(Special {
                c_type: "unsigned",
                mode: Mode::ReadOnly,
                serve: create,
            }),
            "Creates a cache that belongs to no thread and returns its number, for \
             `MALLOCX_TCACHE`; only one thread at a time may use it.",
        ),
        name(
            "flush",
            Leaf::Unsigned(Access::Write(|_, number| {
                Ok(threads::flush_manual_cache(number)?)
            })),
            "Returns the blocks in the cache with this number; EFAULT if there is none.",
        ),
        name(
            "destroy",
            Leaf::Unsigned(Access::Write(|_, number| {
                Ok(threads::destroy_cache(number)?)
            })),
            "Like `tcache.flush`, but also destroys the cache, so that its number can be reused.",
        ),
    ]);
}

/// Makes a cache only if the caller has room for its number.
fn create(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.allow(Mode::ReadOnly)?;
    request.must_read::<u32>()?;
    request.answer(threads::create_cache()?)
}
