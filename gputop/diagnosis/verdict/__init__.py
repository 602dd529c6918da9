"""From the rules that hold to one verdict: choice, votes, ledger, words."""
