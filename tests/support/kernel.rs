//! A kernel that refuses what an older or a poorer one would, for this process and what it starts.
//!
//! By a seccomp filter, so that the refusal comes through the real system call. It is written by hand: a few rules of
//! one shape need no crate.

#![allow(dead_code, unreachable_pub, reason = "each file of tests uses some of it")]

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO, sock_filter, sock_fprog,
};

/// What an argument must be for a call to be refused. The lower 32 bits count.
pub enum Argument {
    Is(u8, u32),
    Has(u8, u32),
}
use Argument::{Has, Is};

/// Calls that are refused.
pub struct Refused {
    pub call: libc::c_long,
    pub when: Vec<Argument>,
    pub errno: i32,
}

/// Linux 5.15, which is the oldest that echo runs on: what came later is not there.
pub fn is_old() {
    const MFD_NOEXEC_SEAL: u32 = 8;
    const SO_PASSPIDFD: u32 = 76;
    const SO_PEERPIDFD: u32 = 77;
    const SO_PASSRIGHTS: u32 = 83;
    const PIDFD_THREAD: u32 = 0o200;
    let unknown_option = |call, option| Refused {
        call,
        when: vec![Is(1, libc::SOL_SOCKET as u32), Is(2, option)],
        errno: libc::ENOPROTOOPT,
    };
    let invalid = |call, argument| Refused { call, when: vec![argument], errno: libc::EINVAL };
    refuse(
        &[
            invalid(libc::SYS_memfd_create, Has(1, MFD_NOEXEC_SEAL)),
            invalid(libc::SYS_pidfd_open, Has(1, PIDFD_THREAD)),
            invalid(libc::SYS_madvise, Is(2, libc::MADV_COLLAPSE as u32)),
            unknown_option(libc::SYS_getsockopt, SO_PEERPIDFD),
            unknown_option(libc::SYS_getsockopt, SO_PASSPIDFD),
            unknown_option(libc::SYS_setsockopt, SO_PASSPIDFD),
            unknown_option(libc::SYS_setsockopt, SO_PASSRIGHTS),
        ],
        // The first that came with 5.16; the numbers are the same everywhere by now.
        Some(libc::SYS_futex_waitv),
    );
}

/// Refuses calls from now on, and with ENOSYS those from a number on. It cannot be taken back.
pub fn refuse(rules: &[Refused], unknown_from: Option<libc::c_long>) {
    let load = |offset: u32| statement(BPF_LD | BPF_W | BPF_ABS, offset);
    let mut program = vec![load(0)];
    if let Some(first) = unknown_from {
        program.push(jump(BPF_JGE, first as u32, 1));
        program.push(statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | libc::ENOSYS as u32));
    }
    for rule in rules {
        let mut of_rule = Vec::new();
        for argument in &rule.when {
            match *argument {
                Is(index, value) => of_rule.extend([vec![load(argument_at(index))], vec![equal(value)]]),
                Has(index, bits) => of_rule.extend([
                    vec![load(argument_at(index)), statement(BPF_ALU | BPF_AND | BPF_K, bits)],
                    vec![equal(bits)],
                ]),
            }
        }
        of_rule.push(vec![statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | rule.errno as u32)]);
        let mut of_rule = of_rule.concat();
        // Whatever does not fit leads behind the rule.
        let length = of_rule.len();
        for (i, instruction) in of_rule.iter_mut().enumerate() {
            if u32::from(instruction.code) & 7 == BPF_JMP {
                instruction.jf = (length - i - 1) as u8;
            }
        }
        program.push(load(0));
        program.push(jump(BPF_JEQ, rule.call as u32, length as u8));
        program.append(&mut of_rule);
    }
    program.push(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: changes what this thread and its children may gain, and no memory.
    let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(done, 0);
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the filter's length and instructions are those of `program`, which lives until the call is over.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, mode, libc::SECCOMP_FILTER_FLAG_TSYNC, &raw const filter) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Where the lower half of an argument is: little-endian, as all that echo runs on.
const fn argument_at(index: u8) -> u32 {
    16 + 8 * index as u32
}

const fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Goes on if so, and leaps over so many if not.
const fn jump(test: u32, k: u32, otherwise: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | test | BPF_K) as u16, jt: 0, jf: otherwise, k }
}

const fn equal(k: u32) -> sock_filter {
    jump(BPF_JEQ, k, 0)
}
