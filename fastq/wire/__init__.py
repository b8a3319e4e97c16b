"""The bytes and keys of asynq's protocol, and the forms that Go writes; no I/O."""
