"""What brings messages from a coordinator to devices and back: Flower over the network, or a call in this process."""
