//! Walks from signal handlers, through the frames that the kernel makes, from every instruction of
//! a program that is run one by one.

use super::arch::{STEP_SIGNAL, STEPS_MIN, step_through};
use super::guard;
use super::library::Library;
use super::walks::{ROOM, cache};
use crate::prof::unwind::modules::Modules;
use crate::prof::unwind::registers::RETURN_IS_FOURTH;
use crate::prof::unwind::walk::walk_by;
use crate::prof::unwind::{End, Registers};
use crate::sys::arch::capture::without_signature;
use crate::testing::{not_installed, own_process};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

static STEPS: AtomicUsize = AtomicUsize::new(0);
static IN_VDSO: AtomicUsize = AtomicUsize::new(0);
/// Walks of the C library that crashed.
static CRASHES: AtomicUsize = AtomicUsize::new(0);
/// The frame with which the first walk ended.
static OUTERMOST: AtomicUsize = AtomicUsize::new(0);
/// Walks that differ.
static BAD: AtomicUsize = AtomicUsize::new(0);
/// The first one: where it was, ours, and the C library's.
static FIRST_BAD: Mutex<(usize, [usize; SHOWN], [usize; SHOWN])> =
    Mutex::new((0, [0; SHOWN], [0; SHOWN]));
/// Frames of it that are shown.
const SHOWN: usize = 16;

/// Counts a walk that differs, and remembers the first.
fn tell_bad(pc: usize, ours: &[usize], theirs: &[usize]) {
    if BAD.fetch_add(1, Ordering::Relaxed) == 0 {
        let mut first = FIRST_BAD.lock().unwrap();
        first.0 = pc;
        first.1.copy_from_slice(&ours[..SHOWN]);
        first.2[..theirs.len().min(SHOWN)].copy_from_slice(&theirs[..theirs.len().min(SHOWN)]);
    }
}

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
    if theirs.len() == interrupted + 1 {
        // It knows no way out of code without a table. That is the linkage table, whose caller is
        // in the same file or, if a function ends by going there (`__cxa_end_catch`), calls that
        // one. Its frame is the same, and so is the outermost one.
        let walk = walk_by(registers, &mut ours, false, Some(cache()), &modules);
        let file = |at| modules.find(at).map(|module| module.start);
        let by_register = RETURN_IS_FOURTH && ours[1] == without_signature(registers.fourth);
        let is_of_caller = file(ours[1]) == file(registers.pc) || by_register;
        let outermost = OUTERMOST.load(Ordering::Relaxed);
        let is_whole = outermost == 0 || ours[..walk.frames].ends_with(&[outermost]);
        if !(walk.end == End::Complete && is_of_caller && is_whole) {
            tell_bad(registers.pc, &ours, theirs);
        }
        return;
    }
    OUTERMOST.store(theirs[theirs.len() - 1], Ordering::Relaxed);
    for cache in [None, Some(cache())] {
        let mut is_fine = true;
        let walk = walk_by(Registers::here(), &mut ours, true, cache, &modules);
        is_fine &= walk.end == End::Complete && ours[..walk.frames] == theirs[1..];
        let walk = walk_by(registers, &mut ours, false, cache, &modules);
        is_fine &= walk.end == End::Complete && ours[..walk.frames] == theirs[interrupted..];
        if !is_fine {
            tell_bad(registers.pc, &ours, theirs);
        }
    }
    STEPS.fetch_add(1, Ordering::Relaxed);
    let vdso = modules.find(registers.pc).map_or(0, |module| module.start);
    // SAFETY: no preconditions.
    let is_vdso = vdso == unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    IN_VDSO.fetch_add(is_vdso as usize, Ordering::Relaxed);
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
    handle(STEP_SIGNAL, on_step);
    handle(libc::SIGSEGV, guard::on_crash);
    handle(libc::SIGBUS, guard::on_crash);
    let value = step_through(function, &STEPS);
    let steps = STEPS.load(Ordering::Relaxed);
    let in_vdso = IN_VDSO.load(Ordering::Relaxed);
    let crashes = CRASHES.load(Ordering::Relaxed);
    std::eprintln!("{steps} instructions, {in_vdso} of them in the vDSO; {crashes} crashes");
    let first_bad = FIRST_BAD.lock().unwrap();
    let bad = BAD.load(Ordering::Relaxed);
    assert_eq!(bad, 0, "of {steps}; the first: {first_bad:x?}");
    assert!(value > 22 && steps > STEPS_MIN);
}
