// Loss curves of a comparison as inline SVG. Variants with bitwise identical losses share a curve.
#pragma once

#include <string>

#include "tools/report/comparison.h"

namespace zero::report {

std::string loss_svg_of(const Comparison& comparison);
// The wide chart as a separate file, with the style sheet of the report.
std::string loss_picture_of(const Comparison& comparison);

}  // namespace zero::report
