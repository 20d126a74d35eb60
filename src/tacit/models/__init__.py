"""What is learnt: initial values, gradients, scores."""
