// Translates the library's messages for Python programs.
#pragma once

#include <string>

// Replaces names of C++ calls by their names in the package.
std::string in_python(std::string message);
