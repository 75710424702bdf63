//! The life of blocks as operations: a block goes into a slot, and a thread takes it out.

use super::process::{Block, End, Form, INHERITED, Process};
use super::{Compiler, control, word};
use crate::event::{Event, Kind};
use crate::plan::slots::Place;
use crate::plan::{Control, NUMBER_AT_BIT, Op, SLOTS_MAX, WAITS_BIT};
use crate::{Error, Result};

/// Blocks from this size on have the long form, which knows how much of them was touched.
const LARGE_BLOCK_BYTES: u64 = 64 << 10;
pub const ALL_TOUCHED: u64 = 255;

/// A block's number as an argument has it.
fn number_bits(block: &Block) -> u64 {
    u64::from(block.number) << NUMBER_AT_BIT
}

/// The bits of an allocation's place.
fn place_bits(place: Place) -> u64 {
    let waits = if place.waits { WAITS_BIT } else { 0 };
    u64::from(place.number) << NUMBER_AT_BIT | waits
}

impl Compiler {
    fn new_slot(&mut self, number: usize) -> Result<Place> {
        let thread = &mut self.threads[number];
        let slots = &mut self.processes[thread.process].slots;
        let place = slots.take(&mut thread.free_slots, self.before, SLOTS_MAX);
        place.ok_or(Error::Damaged(
            "more blocks live at once than a plan can hold",
        ))
    }

    fn process_of(&mut self, number: usize) -> &mut Process {
        &mut self.processes[self.threads[number].process]
    }

    fn shrink(&mut self, number: usize, size: u64) {
        self.live = self.live.saturating_sub(size);
        let process = self.process_of(number);
        process.live = process.live.saturating_sub(size);
    }

    fn grow(&mut self, number: usize, size: u64) {
        let process = self.process_of(number);
        process.live = process.live.saturating_add(size);
        self.live = self.live.saturating_add(size);
        self.begun = self.begun.saturating_add(size);
        self.plan.peak_bytes = self.plan.peak_bytes.max(self.live);
    }

    pub fn allocate(&mut self, number: usize, event: Event) -> Result<()> {
        let place = self.new_slot(number)?;
        let (slot, bits) = (place.slot, place_bits(place));
        let long = event.size >= LARGE_BLOCK_BYTES || event.kind == Kind::Aligned;
        let (form, at) = if long {
            let what = match event.kind {
                Kind::Calloc => 1,
                Kind::Aligned => 2,
                _ => 0,
            };
            let how = what | u64::from(event.align) << 2 | ALL_TOUCHED << 8 | bits;
            let at = self.regions.push(number, word(Op::Long, false, slot, how));
            self.regions.push(number, event.size);
            (Form::Long, at)
        } else {
            let op = match event.kind {
                Kind::Calloc => Op::Calloc,
                _ => Op::Malloc,
            };
            let at = self
                .regions
                .push(number, word(op, false, slot, event.size | bits));
            (Form::Plain, at)
        };
        self.begins(
            number,
            event,
            Block {
                slot,
                number: place.number,
                thread: number as u32,
                at,
                form,
                size: event.size,
            },
        );
        Ok(())
    }

    /// A block lives from now on, unless its end came before.
    fn begins(&mut self, number: usize, event: Event, block: Block) {
        self.grow(number, block.size);
        let blocks = &mut self.process_of(number).blocks;
        let Some((block, end)) = blocks.begin(event.address, event.when, block) else {
            return;
        };
        // A thread that waits for a fork cannot wait for what comes after it.
        let end = if end.at < self.threads[end.thread as usize].paused_at {
            End {
                thread: number as u32,
                ..end
            }
        } else {
            end
        };
        let by = end.thread as usize;
        if by == number {
            let at = self.regions.push(number, 0);
            self.ends(block, End { at, ..end });
        } else {
            self.ends(block, end);
        }
    }

    pub fn free(&mut self, number: usize, event: Event, op: Op) {
        let end = End {
            thread: number as u32,
            at: self.regions.push(number, control(Control::Nothing, 0)),
            op,
        };
        let touched = self.threads[number].touched.take();
        let blocks = &mut self.process_of(number).blocks;
        if let Some((block, end)) = blocks.end(event.address, event.when, end) {
            self.note_touched(block, touched);
            self.ends(block, end);
        }
    }

    /// Writes the free of a block where it has its place.
    fn ends(&mut self, block: Block, end: End) {
        let by = end.thread as usize;
        let elsewhere = self.taken_by(block, by);
        let free = word(end.op, elsewhere, block.slot, number_bits(&block));
        self.regions.change(by, end.at, |_| free);
        self.give_back(by, block.slot, elsewhere);
        self.shrink(by, block.size);
    }

    fn give_back(&mut self, by: usize, slot: u32, elsewhere: bool) {
        let thread = &mut self.threads[by];
        let slots = &mut self.processes[thread.process].slots;
        slots.give_back(slot, &mut thread.free_slots, elsewhere, self.before);
    }

    /// A thread takes a block out of its slot. Returns whether another thread has filled it.
    fn taken_by(&mut self, block: Block, by: usize) -> bool {
        let queries = self.process_of(by).queries.remove(&block.slot);
        for (asked, at) in queries.unwrap_or_default() {
            if asked as usize != by {
                // Nothing orders the query before the free.
                self.plan.queries_left_out += 1;
                self.regions
                    .change(asked as usize, at, |_| control(Control::Nothing, 0));
            }
        }
        if block.thread as usize == by || block.thread == INHERITED {
            return false;
        }
        let from = block.thread as usize;
        self.plan.freed_elsewhere += 1;
        self.regions.change(from, block.at, |word| word | 1 << 3);
        true
    }

    fn note_touched(&mut self, block: Block, touched: Option<u64>) {
        let Some(share) = touched.filter(|_| block.thread != INHERITED) else {
            return;
        };
        let shift = match block.form {
            Form::Plain => return,
            Form::Long => 32 + 8,
            Form::Realloc => 48,
        };
        self.regions
            .change(block.thread as usize, block.at, |word| {
                word & !(0xff << shift) | share << shift
            });
    }

    pub fn begin_resize(&mut self, number: usize, event: Event) {
        let touched = self.threads[number].touched.take();
        let end = End {
            thread: number as u32,
            at: self.regions.length(number),
            op: Op::Free,
        };
        let old = match event.address {
            0 => None,
            address => {
                let blocks = &mut self.process_of(number).blocks;
                blocks.end(address, event.when, end)
            }
        };
        let old = old.map(|(block, _)| block);
        if let Some(block) = old {
            self.note_touched(block, touched);
        } else if event.address != 0 {
            // If its block turns up, it is freed here.
            self.regions.push(number, control(Control::Nothing, 0));
        }
        self.threads[number].resizing = Some((event.address, old));
    }

    pub fn resize(&mut self, number: usize, event: Event) -> Result<()> {
        let (address, old) = self.threads[number].resizing.take().unwrap_or((0, None));
        let Some(old) = old else {
            return match event.address {
                0 => Ok(()),
                _ => self.allocate(
                    number,
                    Event {
                        kind: Kind::Malloc,
                        ..event
                    },
                ),
            };
        };
        if event.address == 0 && event.size != 0 {
            let blocks = &mut self.process_of(number).blocks;
            blocks.begin(address, event.when, old);
            return Ok(());
        }
        if event.address == 0 {
            let at = self.regions.push(number, 0);
            self.ends(
                old,
                End {
                    thread: number as u32,
                    at,
                    op: Op::Free,
                },
            );
            return Ok(());
        }
        let place = self.new_slot(number)?;
        let elsewhere = self.taken_by(old, number);
        let low = event.size & 0xffff_ffff;
        self.regions
            .push(number, word(Op::Realloc, elsewhere, old.slot, low));
        let high = event.size >> 32 & 0xffff;
        let second =
            u64::from(place.waits) | u64::from(place.slot) << 4 | high << 32 | ALL_TOUCHED << 48;
        let at = self.regions.push(number, second);
        let numbers = u64::from(old.number) | u64::from(place.number) << NUMBER_AT_BIT;
        self.regions.push(number, numbers);
        self.give_back(number, old.slot, elsewhere);
        self.shrink(number, old.size);
        self.begins(
            number,
            event,
            Block {
                slot: place.slot,
                number: place.number,
                thread: number as u32,
                at,
                form: Form::Realloc,
                size: event.size,
            },
        );
        Ok(())
    }

    pub fn query(&mut self, number: usize, event: Event) {
        let blocks = &mut self.process_of(number).blocks;
        let Some(&mut block) = blocks.at(event.address) else {
            return;
        };
        let elsewhere = block.thread as usize != number && block.thread != INHERITED;
        if elsewhere {
            self.regions
                .change(block.thread as usize, block.at, |word| word | 1 << 3);
        }
        let at = self.regions.push(
            number,
            word(Op::Query, elsewhere, block.slot, number_bits(&block)),
        );
        let queries = &mut self.process_of(number).queries;
        let asked = queries.entry(block.slot).or_default();
        asked.push((number as u32, at));
    }
}
