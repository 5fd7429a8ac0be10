"""One backend per runtime: builds an artifact and reads back what it achieved."""
