//! Model providers: wire formats, streaming, error classes, credentials, catalogue, cost
