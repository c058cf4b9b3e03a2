"""The encoders, BERT and ModernBERT: one interface (`encoder`, `heads`), chosen in `catalogue`."""
