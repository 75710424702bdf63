//! What the unwinder has to know of an architecture: how functions and the kernel keep registers.

/// The facts of one architecture. They contain no instruction, so tests of the tables of one
/// architecture run on any other.
///
/// The unwinder follows four registers: the program counter, the stack pointer, the frame pointer,
/// and a fourth one, which the architecture chooses.
pub trait Convention {
    /// Numbers in unwind tables.
    const FP: u8;
    const SP: u8;
    const FOURTH: u8;
    /// The column of the return address.
    const RETURN: u8;
    /// Where a call puts the return address, from the frame's CFA; `None` if it stays in the fourth
    /// register until the function saves that.
    const RETURN_AT: Option<i64>;
    /// Whether a frame pointer is right below the CFA and the return address. Else the record that
    /// it points to may lie anywhere in its frame.
    const RECORD_IS_AT_TOP: bool;
    /// Instructions begin at multiples of this.
    const INSTRUCTION_BYTES: usize;
    /// Distance from the stack pointer of a signal's frame to the `ucontext_t` in it.
    const CONTEXT_AT: usize;
    /// What a signal handler returns to; at least eight bytes.
    const RETURN_FROM_SIGNAL: &'static [u8];
    /// Offset in a `ucontext_t` of the program counter.
    const PC_SAVED_AT: usize;

    /// Offset in a `ucontext_t` of the register with this number; `None` if the kernel saves none.
    fn saved_at(register: u8) -> Option<usize>;

    /// Whether the eight bytes before an address end with a call, as far as they show.
    fn ends_with_call(bytes: [u8; 8]) -> bool;
}
