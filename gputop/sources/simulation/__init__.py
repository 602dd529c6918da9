"""How the demo's machines live: noise, lives of GPUs and jobs, and the samples that they give at a moment."""
