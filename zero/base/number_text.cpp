#include "zero/base/number_text.h"

#include <charconv>
#include <cstdio>

namespace zero {

std::string shortest_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// Uses GiB only from 10 GiB on, so that small figures next to a large figure keep all digits.
ByteUnit byte_unit(double largest) {
  if (largest >= 10 * gibibyte) return {"GiB", gibibyte};
  if (largest >= mebibyte) return {"MiB", mebibyte};
  return {"KiB", kibibyte};
}

std::string byte_text(double bytes) {
  const ByteUnit unit = bytes >= gibibyte ? ByteUnit{"GiB", gibibyte} : byte_unit(bytes);
  char text[400];  // the largest double has 309 digits
  std::snprintf(text, sizeof text, "%.2f %s", bytes / unit.size, unit.name);
  return text;
}

}  // namespace zero
