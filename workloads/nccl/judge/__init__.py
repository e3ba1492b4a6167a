"""Whether a fabric delivers what was paid for: what was measured, by us or by others, against published floors."""
