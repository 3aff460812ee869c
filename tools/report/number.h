// Number formats of the reports; independent of the locale.
#pragma once

#include <cstdint>
#include <string>

#include "zero/base/number_text.h"

namespace zero::report {

// "12,345.67"; "not finite" for infinities and NaN.
std::string fixed(double value, int decimals);
// Six significant digits.
std::string general(double value);
// "0x" and 16 digits.
std::string hexadecimal(std::uint64_t value);

// The format of all other output: "1.50 MiB".
using zero::byte_text;

// The unit for all figures of a chart or of related rows.
struct Unit {
  const char* name;
  double size;
  int decimals;

  std::string operator()(double value) const { return fixed(value / size, decimals); }
};
// Returns KiB, MiB or GiB, to fit the largest value.
Unit byte_unit(double largest);
// Returns us, ms or s.
Unit time_unit(double largest_seconds);

// Returns "1.234 s", or the time in a smaller unit.
std::string time_text(double seconds);

// Returns a round distance of axis ticks, so that about `wanted` fit in a range.
double tick_distance(double range, int wanted);
// Returns the label of a tick, with the decimals that the distance needs.
std::string tick_label(double value, double distance);

}  // namespace zero::report
