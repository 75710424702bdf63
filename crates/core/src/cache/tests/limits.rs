//! What a cache that is disabled or limited holds.

use super::*;

#[test]
fn a_class_above_the_limit_is_not_kept() {
    crate::testing::own_process!();
    let _alone = alone();
    in_a_thread(|cache| {
        configure(defaults(1000));
        cache.set_out(cache.arena());
        let (kept, not) = (Class::of(896), Class::of(1000));
        for class in [kept, not] {
            let block = take(cache, class);
            give(cache, class, block);
        }
        assert!(cache.len(kept) > 0);
        assert_eq!(cache.stack(not).capacity(), 0);
        configure(defaults(CACHED_MAX));
    });
}

#[test]
fn a_cache_that_is_switched_off_or_bounded_holds_nothing_beyond() {
    crate::testing::own_process!();
    let _alone = alone();
    let class = Class::of(64);
    in_a_thread(|cache| {
        fill_stack(cache, class);
        cache.enable(false);
        assert_eq!(cache.len(class), 0);
        let block = take(cache, class);
        give(cache, class, block);
        assert_eq!((cache.len(class), cache.is_enabled()), (0, false));
        cache.set_max_size(1000);
        cache.enable(true);
        assert_eq!(cache.max_size(), 1024, "rounded up");
        for (size, kept) in [(1024, true), (1025, false)] {
            let class = Class::of(size);
            let block = take(cache, class);
            give(cache, class, block);
            assert_eq!(cache.len(class) > 0, kept, "{size} bytes");
        }
        configure(CacheDefaults {
            may_hold: false,
            ..defaults(CACHED_MAX)
        });
        cache.enable(true);
        assert!(cache.is_enabled(), "as was asked");
        let block = take(cache, class);
        give(cache, class, block);
        assert_eq!(cache.len(class), 0, "the options forbid it");
        configure(defaults(CACHED_MAX));
    });
}
