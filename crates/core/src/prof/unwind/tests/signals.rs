//! Walks from signal handlers, through the frames that the kernel makes, from every instruction of
//! a program that is run one by one.

use super::guard;
use super::library::Library;
use super::walks::{ROOM, cache};
use crate::prof::unwind::modules::Modules;
use crate::prof::unwind::walk::walk_by;
use crate::prof::unwind::{End, Registers};
use crate::testing::{not_installed, own_process};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bit of the flags: it has the processor stop after each instruction.
const STEP: i64 = 0x100;

static STEPS: AtomicUsize = AtomicUsize::new(0);
static IN_VDSO: AtomicUsize = AtomicUsize::new(0);
/// Walks of the C library that crashed.
static CRASHES: AtomicUsize = AtomicUsize::new(0);
/// Walks that differ.
static BAD: AtomicUsize = AtomicUsize::new(0);
/// The first one: where it was, ours, and the C library's.
static FIRST_BAD: Mutex<(usize, [usize; SHOWN], [usize; SHOWN])> =
    Mutex::new((0, [0; SHOWN], [0; SHOWN]));
/// Frames of it that are shown.
const SHOWN: usize = 16;

extern "C" fn nothing() {}

/// At each instruction: the C library's walk of the handler's stack and ours, which begins in the
/// handler too, and another one that begins with the interrupted registers.
extern "C" fn on_step(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the context of the interrupted thread, which stands still.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = Registers::interrupted(context);
    let (mut theirs, mut ours) = ([0; ROOM], [0; ROOM]);
    guard::walks_from(registers.pc);
    let Some(theirs) = guard::own_stack(&mut theirs) else {
        CRASHES.fetch_add(1, Ordering::Relaxed);
        return;
    };
    // Ours tells an interrupted instruction from a return address.
    let Some(interrupted) = theirs.iter().position(|&at| at == registers.pc) else {
        // The C library has no way out of here, and nothing else has the true stack.
        return;
    };
    theirs[interrupted] += 1;
    let modules = Modules::new();
    for cache in [None, Some(cache())] {
        let mut is_fine = true;
        let walk = walk_by(Registers::here(), &mut ours, true, cache, &modules);
        is_fine &= walk.end == End::Complete && ours[..walk.frames] == theirs[1..];
        let walk = walk_by(registers, &mut ours, false, cache, &modules);
        is_fine &= walk.end == End::Complete && ours[..walk.frames] == theirs[interrupted..];
        if !is_fine && BAD.fetch_add(1, Ordering::Relaxed) == 0 {
            let mut first = FIRST_BAD.lock().unwrap();
            first.0 = registers.pc;
            first.1.copy_from_slice(&ours[..SHOWN]);
            first.2[..theirs.len().min(SHOWN)].copy_from_slice(&theirs[..theirs.len().min(SHOWN)]);
        }
    }
    STEPS.fetch_add(1, Ordering::Relaxed);
    let vdso = modules.find(registers.pc).map_or(0, |module| module.start);
    // SAFETY: no preconditions.
    let is_vdso = vdso == unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    IN_VDSO.fetch_add(is_vdso as usize, Ordering::Relaxed);
}

// Flips the bit. With a table for each instruction: the stack is walked between them.
core::arch::global_asm!(
    ".pushsection .text.mallard_test",
    ".hidden mallard_test_flip_step",
    ".globl mallard_test_flip_step",
    ".type mallard_test_flip_step, @function",
    "mallard_test_flip_step:",
    ".cfi_startproc",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    "xor qword ptr [rsp], {step}",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".popsection",
    step = const STEP,
);

unsafe extern "C" {
    fn mallard_test_flip_step();
}

/// Calls a function with the bit of the flags set.
fn step_through(function: extern "C" fn(extern "C" fn()) -> i32) -> i32 {
    // SAFETY: changes a flag that only the handler of signals notices.
    unsafe { mallard_test_flip_step() };
    let value = function(nothing);
    // SAFETY: as above.
    unsafe { mallard_test_flip_step() };
    value
}

fn handle(signal: i32, handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void)) {
    // SAFETY: the handler has the type that the flag says, and all else is zero.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_flags = libc::SA_SIGINFO;
        action.sa_sigaction = handler as *const () as usize;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

#[test]
fn from_every_instruction_of_a_program_the_stack_is_that_of_the_c_library() {
    own_process!();
    let Some(library) = Library::get() else {
        return not_installed("c++");
    };
    // The C library loads its unwinder at the first use, and ours makes its cache.
    guard::own_stack(&mut [0; ROOM]);
    cache();
    let function = library.function("stepped");
    handle(libc::SIGTRAP, on_step);
    handle(libc::SIGSEGV, guard::on_crash);
    handle(libc::SIGBUS, guard::on_crash);
    let value = step_through(function);
    let steps = STEPS.load(Ordering::Relaxed);
    let in_vdso = IN_VDSO.load(Ordering::Relaxed);
    let crashes = CRASHES.load(Ordering::Relaxed);
    std::eprintln!("{steps} instructions, {in_vdso} of them in the vDSO; {crashes} crashes");
    let first_bad = FIRST_BAD.lock().unwrap();
    let bad = BAD.load(Ordering::Relaxed);
    assert_eq!(bad, 0, "of {steps}; the first: {first_bad:x?}");
    assert!(value > 22 && steps > 10_000);
}
