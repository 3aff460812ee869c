#include "tools/report/number.h"

#include <cmath>
#include <cstdio>

namespace zero::report {

std::string fixed(double value, int decimals) {
  if (!std::isfinite(value)) return "not finite";
  char text[400];  // the largest double has 309 digits
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  std::string grouped = text;
  const std::size_t point = grouped.find('.');
  const std::size_t first = grouped.front() == '-' ? 1 : 0;
  for (std::size_t at = point == std::string::npos ? grouped.size() : point; at > first + 3;)
    grouped.insert(at -= 3, ",");
  return grouped;
}

std::string general(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string hexadecimal(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(value));
  return text;
}

Unit byte_unit(double largest) {
  const ByteUnit unit = zero::byte_unit(largest);
  return {unit.name, unit.size, 2};
}

Unit time_unit(double largest_seconds) {
  if (largest_seconds >= 10) return {"s", 1, 2};
  if (largest_seconds >= 1e-3) return {"ms", 1e-3, largest_seconds >= 0.1 ? 1 : 2};
  return {"\u00b5s", 1e-6, 1};
}

std::string time_text(double seconds) {
  if (seconds >= 1) return fixed(seconds, 3) + " s";
  const Unit unit = time_unit(seconds);
  return unit(seconds) + " " + unit.name;
}

double tick_distance(double range, int wanted) {
  if (!(range > 0)) return 1;
  const double rough = range / wanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1., 2., 5.})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

std::string tick_label(double value, double distance) {
  return fixed(value, distance >= 1 ? 0 : distance >= 0.1 ? 1 : 2);
}

}  // namespace zero::report
