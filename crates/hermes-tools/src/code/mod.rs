//! `execute_code`: a program that calls tools.
