"""Explain the words in the tables of ``evaluate`` and ``results``, at the end of their ``--help``.

``\\b`` keeps click from wrapping the lines.
"""

METRICS = """\
  accuracy: share of right answers
  macro f1: F1 of each class, averaged: rare classes count as much as
    frequent ones
  f1: harmonic mean of precision (how many of the answers are right) and
    recall (how many of the right ones are found)
  matthews: correlation between classes: 1 is perfect, 0 a constant or
    random answer (CoLA)
  spearman, pearson: correlation between scores: by rank, and by value
  exact: share of questions answered word for word (SQuAD)
"""
WORDS_OF_EVALUATE = f"""\b
Words:
  mlm loss: mean surprise at the masked tokens, in nats; lower is better
  perplexity: e to the power of that loss: as unsure as a choice among
    that many tokens
  mlm accuracy: share of masked tokens guessed right
  nsp loss, accuracy: the same for next-sentence prediction: does B follow
    A?
{METRICS}"""
WORDS_OF_RESULTS = f"""\b
Words:
  median, best: over the runs, which differ in learning rate and seed
  spread: best minus worst run
  degen.: degenerate runs: no better than a constant answer
{METRICS}"""
