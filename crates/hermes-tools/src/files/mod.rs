//! Files: reading, writing, patching, searching, checkpoints.
