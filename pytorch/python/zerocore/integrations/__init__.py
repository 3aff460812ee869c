"""A file for each other library that zerocore knows something of. None of these files imports its library: a module counts if the
script has imported it."""
