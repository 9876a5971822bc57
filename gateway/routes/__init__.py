"""HTTP: requests are decoded, what they ask for is called, answers are encoded."""
