//! Sessions and turns: prompt, projection, tool planning, recovery, compression
