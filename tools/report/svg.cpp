#include "tools/report/svg.h"

#include <cstdio>

#include "tools/report/markup.h"

namespace zero::report::svg {
namespace {

bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

}  // namespace

double text_width(std::string_view text) {
  constexpr double widest_digit = 0.64;  // of common sans-serif fonts, relative to the font size
  double width = 0;
  for (const char c : text)
    if (begins_character(c)) width += c == ',' || c == '.' || c == ' ' ? 0.36 : widest_digit;
  return width * font_size;
}

std::string shortened(const std::string& text, std::size_t columns) {
  std::size_t count = 0, cut = text.size();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!begins_character(text[i])) continue;
    if (count + 1 == columns) cut = i;
    if (++count > columns) return text.substr(0, cut) + "\u2026";
  }
  return text;
}

std::string length(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::string open(const Sheet& sheet, double height, const std::string& description) {
  return std::string("<svg class=\"") + sheet.css_class + "\" viewBox=\"0 0 " +
         length(sheet.width) + " " + length(height) + "\" role=\"img\" aria-label=\"" +
         escape_html(description) + "\">\n";
}

std::string text(double x, double y, const char* css_class, const std::string& content) {
  return "<text x=\"" + length(x) + "\" y=\"" + length(y) + "\" class=\"" + escape_html(css_class) +
         "\">" + escape_html(content) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const char* css_class) {
  return "<line x1=\"" + length(x1) + "\" y1=\"" + length(y1) + "\" x2=\"" + length(x2) +
         "\" y2=\"" + length(y2) + "\" class=\"" + css_class + "\"/>\n";
}

}  // namespace zero::report::svg
