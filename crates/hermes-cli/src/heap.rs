//! The allocator (jemalloc) and its settings.
//!
//! The C library of Linux gives every thread a heap of its own and keeps the holes between pieces
//! that live for different times: over ten thousand turns a gateway held a third more than at the
//! beginning, of which it used ever less. jemalloc keeps pieces of one size together and gives
//! emptied pages back. SQLite, which is written in C, is told to take its memory from it, too. The
//! `malloc` of the C library itself is left alone: whatever is loaded before the program (libfaketime,
//! say) may ask for memory while jemalloc is being set up, which then waits for itself.

/// Before anything uses SQLite.
pub(crate) fn set_up() {
    #[cfg(target_os = "linux")]
    linux::serve_sqlite();
}

/// Gives back every page that nothing is in, when a program that ran at full steam comes to rest.
/// Else that happens only while memory is asked for.
pub(crate) fn give_back() {
    #[cfg(target_os = "linux")]
    linux::give_back();
}

#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "jemalloc is written in C: it has its settings under a name and its controls behind a pointer"
)]
mod linux {
    use std::ffi::{CStr, c_char, c_int, c_void};
    use std::ptr;

    use rusqlite::ffi::{SQLITE_CONFIG_MALLOC, SQLITE_OK, sqlite3_config, sqlite3_mem_methods};
    use tikv_jemalloc_sys as jemalloc;

    #[global_allocator]
    static HEAP: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

    /// One arena: more of them hold more that is free. Each thread keeps a few small pieces at
    /// hand: with jemalloc's own measure, a few dozen threads keep megabytes. Emptied pages go back
    /// within a second.
    const SETTINGS: &CStr = c"narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0,tcache_nslots_small_max:20,tcache_max:1024";

    /// Read by jemalloc before the first piece is given out.
    #[unsafe(export_name = "_rjem_malloc_conf")]
    // SAFETY: points at the first character of a text that is there for ever.
    static CONF: &c_char = unsafe { &*SETTINGS.as_ptr() };

    const SQLITE: sqlite3_mem_methods = sqlite3_mem_methods {
        xMalloc: Some(take),
        xFree: Some(jemalloc::free),
        xRealloc: Some(resize),
        xSize: Some(size),
        xRoundup: Some(round_up),
        xInit: Some(begin),
        xShutdown: Some(end),
        pAppData: ptr::null_mut(),
    };

    /// SQLite takes its memory from jemalloc from now on.
    pub(super) fn serve_sqlite() {
        let methods = SQLITE;
        // SAFETY: SQLite copies the table, and nothing has used SQLite yet.
        let done = unsafe { sqlite3_config(SQLITE_CONFIG_MALLOC, &raw const methods) };
        if done != SQLITE_OK {
            tracing::debug!("SQLite keeps its own memory: {done}");
        }
    }

    unsafe extern "C" fn take(bytes: c_int) -> *mut c_void {
        // SAFETY: any size may be asked for; one below zero is none.
        unsafe { jemalloc::malloc(usize::try_from(bytes).unwrap_or(0)) }
    }

    unsafe extern "C" fn resize(piece: *mut c_void, bytes: c_int) -> *mut c_void {
        // SAFETY: SQLite hands in a piece that it got from `take`.
        unsafe { jemalloc::realloc(piece, usize::try_from(bytes).unwrap_or(0)) }
    }

    unsafe extern "C" fn size(piece: *mut c_void) -> c_int {
        // SAFETY: the same.
        let bytes = unsafe { jemalloc::malloc_usable_size(piece) };
        c_int::try_from(bytes).unwrap_or(c_int::MAX)
    }

    extern "C" fn round_up(bytes: c_int) -> c_int {
        let rounded = u32::try_from(bytes).unwrap_or(0).next_multiple_of(8);
        c_int::try_from(rounded).unwrap_or(c_int::MAX)
    }

    extern "C" fn begin(_: *mut c_void) -> c_int {
        SQLITE_OK
    }

    extern "C" fn end(_: *mut c_void) {}

    /// 4096 stands for all arenas.
    const PURGE: &CStr = c"arena.4096.purge";

    pub(super) fn give_back() {
        // SAFETY: a control that takes nothing and returns nothing but whether it was done; if
        // not, memory stays where it is.
        unsafe {
            jemalloc::mallctl(
                PURGE.as_ptr(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                0,
            );
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn setting<T: Copy>(name: &CStr, mut value: T) -> T {
            let mut size = size_of::<T>();
            // SAFETY: jemalloc writes as many bytes as it is told that there are, or refuses.
            let refused = unsafe {
                jemalloc::mallctl(
                    name.as_ptr(),
                    (&raw mut value).cast(),
                    &raw mut size,
                    ptr::null_mut(),
                    0,
                )
            };
            assert_eq!(refused, 0, "{name:?}");
            value
        }

        #[test]
        fn the_settings_are_heard() {
            assert_eq!(setting(c"opt.narenas", 0_u32), 1);
            assert_eq!(setting(c"opt.dirty_decay_ms", 0_isize), 1000);
            assert_eq!(setting(c"opt.tcache_max", 0_usize), 1024);
        }

        #[test]
        fn what_sqlite_asks_for_comes_from_here() {
            serve_sqlite();
            // SAFETY: freed below, once.
            let piece = unsafe { rusqlite::ffi::sqlite3_malloc(3000) };
            // SAFETY: jemalloc is asked about a piece; one that is not its own would be an error.
            let usable = unsafe { jemalloc::malloc_usable_size(piece) };
            // SAFETY: given out above.
            unsafe { rusqlite::ffi::sqlite3_free(piece) };
            assert_eq!(usable, 3072, "a size of jemalloc's, not of the C library");
        }

        #[test]
        fn emptied_pages_go_back() {
            fn resident() -> usize {
                let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
                let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
                // SAFETY: asks for a number.
                let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
                pages * usize::try_from(page).unwrap()
            }
            let pieces: Vec<Vec<u8>> = (0..2000).map(|_| vec![1_u8; 16 * 1024]).collect();
            let full = resident();
            drop(pieces);
            give_back();
            let after = resident();
            // 32 MB were given back; others may take some meanwhile.
            assert!(after + (16 << 20) < full, "{full} to {after} bytes");
        }
    }
}
