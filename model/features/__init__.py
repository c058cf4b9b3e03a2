"""Hidden states of a frozen encoder, written to Parquet."""
