#include <doctest/doctest.h>
#include <zero/zero.h>

TEST_CASE("a test links the engine") {
  CHECK(zero::Runtime::single().size() == 1);
}
