// Pieces of inline SVG that the charts share. Lengths are user units; the page scales the drawing.
// Every chart is drawn twice, for wide windows and for phones: the style sheet shows one drawing.
#pragma once

#include <string>
#include <string_view>

namespace zero::report::svg {

inline constexpr double font_size = 14;

struct Sheet {
  const char* css_class;
  double width;
  bool narrow;
};
inline constexpr Sheet wide = {"wide", 900, false}, narrow = {"narrow", 360, true};

// Returns a width sufficient for the text in the page's font, so that labels are placed without a
// browser.
double text_width(std::string_view text);
// Returns at most `columns` characters, with an ellipsis if the text was truncated.
std::string shortened(const std::string& text, std::size_t columns);

std::string open(const Sheet& sheet, double height, const std::string& description);
std::string text(double x, double y, const char* css_class, const std::string& content);
std::string line(double x1, double y1, double x2, double y2, const char* css_class);
std::string length(double value);

}  // namespace zero::report::svg
