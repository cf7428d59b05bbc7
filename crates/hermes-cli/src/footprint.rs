//! Returns memory pages to the system that only startup needed.
//!
//! What a program has touched of its own file counts as its memory, with much around it that came
//! along, until somebody else needs the room. Arguments, settings and wiring are read once; what
//! follows them needs little of the same code.

/// Gives back the pages of the program's file. Those that are needed again are taken from the
/// system's cache.
pub(crate) fn give_back() {
    #[cfg(target_os = "linux")]
    linux::give_back();
}

#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "the loaded program is described by the C library alone"
)]
mod linux {
    use std::ffi::{c_int, c_void};

    pub(super) fn give_back() {
        // SAFETY: the callback reads what it is given and keeps nothing.
        unsafe { libc::dl_iterate_phdr(Some(program), std::ptr::null_mut()) };
    }

    /// The first that is told of is the program itself; not zero: no further ones.
    unsafe extern "C" fn program(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        _data: *mut c_void,
    ) -> c_int {
        // SAFETY: the C library passes a description that is valid for the length of the call.
        let info = unsafe { &*info };
        if info.dlpi_phdr.is_null() {
            return 1;
        }
        // SAFETY: as many headers as it says, for as long as the program runs.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let Ok(page) = usize::try_from(page) else {
            return 1;
        };
        for header in headers {
            // What is written to, by the loader too, exists only in memory.
            if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
                continue;
            }
            let (Ok(base), Ok(at), Ok(len)) = (
                usize::try_from(info.dlpi_addr),
                usize::try_from(header.p_vaddr),
                usize::try_from(header.p_memsz),
            ) else {
                continue;
            };
            let start = (base + at).next_multiple_of(page);
            let end = (base + at + len) / page * page;
            if start < end {
                // SAFETY: the range is mapped from the file, was never written to and comes back
                // as it was when it is touched. A refusal changes nothing.
                unsafe {
                    libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED);
                }
            }
        }
        1
    }

    #[cfg(test)]
    mod tests {
        /// Pages of the program's own code that are in memory, in kilobytes.
        fn code() -> u64 {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let program = std::env::current_exe().unwrap();
            let mut lines = maps.lines();
            let mut found = 0;
            while let Some(line) = lines.next() {
                if line.contains(" r-xp ") && line.ends_with(&*program.to_string_lossy()) {
                    let resident = lines.find(|line| line.starts_with("Rss:")).unwrap();
                    let kb = resident.split_whitespace().nth(1).unwrap();
                    found += kb.parse::<u64>().unwrap();
                }
            }
            found
        }

        #[test]
        fn code_is_given_back_and_runs_on() {
            let whole: usize = (0..1000).map(|n| format!("{n}").len()).sum();
            let before = code();
            super::give_back();
            let after = code();
            assert!(after < before, "{before} to {after} KB");
            let again: usize = (0..1000).map(|n| format!("{n}").len()).sum();
            assert_eq!(whole, again);
        }
    }
}
