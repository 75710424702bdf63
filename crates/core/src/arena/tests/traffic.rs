//! What a thread gets for its own use from a bin that another thread uses too.

use super::super::small::bin::{Bin, BinState};
use super::{Slab, Traffic, alone, give_to_bin, unmake};
use crate::arena::Fit;
use crate::arena::{Drain, any, drain};
use crate::class::Class;
use std::thread;
use std::vec;
use std::vec::Vec;

const SIZE: usize = 1024;

/// Runs `f` on a bin in another thread, the same one for the whole call.
fn elsewhere<T: Send>(bin: &Bin, f: impl FnOnce(&mut BinState) -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(|| f(&mut bin.0.lock())).join().unwrap())
}

fn class() -> Class {
    Class::of(SIZE)
}

/// All regions of a new slab, for the calling thread's own use.
fn take_slab(b: &mut BinState) -> Vec<usize> {
    assert!(b.adopt(Slab::make(class(), 0).unwrap()).is_none());
    let mut blocks = vec![0; class().shape().regions as usize];
    assert_eq!(b.take_own(class(), &mut blocks), blocks.len());
    blocks
}

fn give(b: &mut BinState, blocks: &[usize]) {
    for &block in blocks {
        if let Some(empty) = give_to_bin(b, Slab::of(block, class()), &[block]) {
            unmake(empty);
        }
    }
}

fn take_own(b: &mut BinState, n: usize) -> Vec<usize> {
    let mut blocks = vec![0; n];
    assert_eq!(b.take_own(class(), &mut blocks), n);
    blocks.sort_unstable();
    blocks
}

fn end(bin: &Bin, blocks: [&[usize]; 2]) {
    let mut b = bin.0.lock();
    blocks.iter().for_each(|blocks| give(&mut b, blocks));
    unmake(b.idle_spare(Drain::All).expect("one is kept"));
    assert_eq!(b.counts.slabs, 0);
}

#[test]
fn a_thread_gets_back_what_was_its_own_and_any_where_that_is_used_up() {
    crate::testing::own_process!();
    let _alone = alone();
    let bin = Bin::new();
    let mut mine = take_slab(&mut bin.0.lock());
    mine.sort_unstable();
    // Another thread's slab is the fullest. It stays that thread's, whichever thread frees into it.
    let theirs = elsewhere(&bin, take_slab);
    let mut b = bin.0.lock();
    give(&mut b, &mine[..8]);
    give(&mut b, &theirs[..2]);
    assert_eq!(take_own(&mut b, 8), mine[..8]);
    let more = take_own(&mut b, 1);
    assert!(theirs[..2].contains(&more[0]), "before memory grows");
    // As far as the bin knows, the block is this thread's now.
    give(&mut b, &more);
    give(&mut b, &mine[..1]);
    assert_eq!(take_own(&mut b, 3), {
        let mut all = [theirs[0], theirs[1], mine[0]];
        all.sort_unstable();
        all
    });
    // Without a preference, blocks come from the fullest.
    give(&mut b, &mine[..8]);
    give(&mut b, &theirs[..1]);
    let mut one = [0];
    assert_eq!(b.take_regions(&mut one), 1);
    assert_eq!(one, theirs[..1]);
    drop(b);
    end(&bin, [&mine[8..], &theirs]);
}

#[test]
fn what_a_thread_stored_for_itself_stays_out_of_anothers_hands_unless_that_asks_for_any() {
    crate::testing::own_process!();
    let _alone = alone();
    let bin = Bin::new();
    let mine = take_slab(&mut bin.0.lock());
    let both = |b: &mut BinState| {
        let theirs = take_slab(b);
        assert_eq!(b.put(class(), Traffic::Own, &theirs[..8]), 8);
        theirs
    };
    let theirs = elsewhere(&bin, both);
    let mut b = bin.0.lock();
    assert_eq!(b.put(class(), Traffic::Own, &mine[..4]), 0);
    give(&mut b, &mine[..4]);
    let mut got = take_own(&mut b, 4);
    assert!(got.iter().all(|p| mine.contains(p)));
    assert_eq!(b.transfer.len(), 8);
    assert_eq!(b.take(class(), 4, &mut got), 4);
    assert!(got.iter().all(|p| theirs[..8].contains(p)));
    // The thread gets back the blocks that it put there.
    let n = b.transfer.len();
    assert_eq!(b.put(class(), Traffic::Passing, &got), 4);
    assert_eq!(b.take_own(class(), &mut got), 4);
    assert_eq!(b.transfer.len(), n);
    let mut rest = vec![0; n];
    assert_eq!(b.transfer.idle(class(), &mut rest, Drain::All), n);
    b.transfer.forget(class());
    drop(b);
    end(&bin, [&mine, &theirs]);
}

#[test]
fn a_thread_that_grows_is_given_whole_batches_of_slabs_and_half_ones_of_a_transfer_cache() {
    crate::testing::own_process!();
    let _alone = alone();
    drain(Drain::All);
    let arena = any().expect("there is memory");
    let mut blocks = [0; 16];
    let fill = |out: &mut [usize]| arena.fill_at(class(), Fit::ANY, Traffic::Growth, out);
    assert_eq!(fill(&mut blocks), 16);
    arena.flush(class(), &mut blocks.clone());
    assert_eq!(arena.counts(class()).1, 16);
    let mut again = [0; 16];
    assert_eq!(fill(&mut again), 8);
    assert!(again[..8].iter().all(|p| blocks.contains(p)));
    arena.flush(class(), &mut again[..8]);
    drain(Drain::All);
}
