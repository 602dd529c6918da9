"""Pages for a browser: one self-contained file each, without scripts. What reports, comparisons and traces share."""
