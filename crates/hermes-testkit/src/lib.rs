//! Test only: scripted model server, virtual clock, temporary homes, event recorder, the original as oracle
