//! The cost of a refresh of the statistics.

use crate::api::arenas;
use crate::cache::{life, registry};
use crate::class::Class;
use crate::ctl;
use crate::stats::tests::steps;
use crate::testing::alone;
use std::thread;
use std::vec::Vec;

#[test]
fn a_refresh_takes_steps_for_each_block_and_each_arena_but_not_for_each_pair() {
    crate::testing::own_process!();
    const ARENAS: usize = 200;
    const BLOCKS: usize = 50;
    let _alone = alone();
    thread::spawn(|| {
        let before = (steps(), steps()).1;
        let made: Vec<u32> = (0..ARENAS)
            .map(|_| arenas::create().expect("memory"))
            .collect();
        let arenas = (steps(), steps()).1 - before;
        // Blocks of the last arena.
        let go_to = |arena: u32| {
            // SAFETY: the arena exists while this thread is in it.
            unsafe { ctl::write(b"thread.arena", arena) }.expect("it was made");
        };
        go_to(made[ARENAS - 1]);
        let cache = life::current_or_new().expect("there is memory");
        for class in Class::slabs().take(20) {
            let blocks: Vec<usize> = (0..BLOCKS).filter_map(|_| cache.take(class)).collect();
            blocks.into_iter().for_each(|block| cache.put(class, block));
        }
        let mut cached = 0;
        registry::each(|cache| cached += Class::slabs().map(|c| cache.len(c)).sum::<usize>());
        let all = steps();
        go_to(0);
        made.into_iter().for_each(|arena| {
            // SAFETY: nothing was allocated from it.
            unsafe { arenas::destroy(arena) }.expect("it was made");
        });
        assert!(cached > 0);
        let each_arena = 2 * Class::cachable().count();
        assert!(
            arenas <= ARENAS * each_arena,
            "{arenas} steps for {ARENAS} arenas"
        );
        let max = before + arenas + 4 * cached;
        assert!(all <= max, "{all} steps for {cached} blocks, not {max}");
    })
    .join()
    .expect("the test passes");
}
