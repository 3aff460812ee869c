#pragma once

#include <string>

#include "config_schemas/document.h"

namespace zero::tests {

// Returns a document as JSON without blanks; its strings must need no escapes.
inline std::string json(const config_schemas::Node& node) {
  using Kind = config_schemas::Node::Kind;
  const bool object = node.kind == Kind::object;
  if (node.kind == Kind::string) return '"' + node.text + '"';
  if (!object && node.kind != Kind::array) return node.text;
  std::string text;
  for (const config_schemas::Member& member : node.members)
    text +=
        (text.empty() ? "" : ",") + (object ? '"' + member.key + "\":" : "") + json(member.value);
  return object ? "{" + text + "}" : "[" + text + "]";
}

}  // namespace zero::tests
