#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

// Disables strict mode, so that memory and traffic are those of the stages in every build; tests of
// strict mode enable it.
int main(int argc, char** argv) {
  ::setenv("ZERO_STRICT", "0", 0);
  return doctest::Context(argc, argv).run();
}
