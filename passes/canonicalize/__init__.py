"""One operator set, unique names, constants as initializers, fresh shapes."""
