"""What makes tool plugins short."""
