// Escapes text for HTML, SVG and Markdown.
#pragma once

#include <string>
#include <string_view>

namespace zero::report {

// For content and for quoted attributes.
std::string escape_html(std::string_view text);
// For a cell of a table or a line of a list.
std::string escape_markdown(std::string_view text);

}  // namespace zero::report
