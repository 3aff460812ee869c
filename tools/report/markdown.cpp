#include "tools/report/markdown.h"

#include "tools/report/markup.h"
#include "tools/report/notes.h"
#include "tools/report/table.h"
#include "tools/report/verdict.h"

namespace zero::report {

namespace {

std::string markdown_of(const Table& table) {
  std::string text = "\n| |";
  for (const std::string& column : table.columns) text += " " + escape_markdown(column) + " |";
  text += "\n|---|";
  for (std::size_t i = 0; i < table.columns.size(); ++i) text += "---:|";
  for (const Row& row : table.rows) {
    const bool heading = row.kind == Row::Kind::heading;
    const std::string label = escape_markdown(row.label);
    text += "\n| " + (heading ? "**" + label + "**" : label) + " |";
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      text += heading ? " |" : " " + escape_markdown(row.cells[i]) + " |";
  }
  return text + "\n\n";
}

}  // namespace

std::string markdown_of(const Comparison& comparison) {
  std::string text = "# " + escape_markdown(comparison.title) + "\n\n";
  for (const std::string& sentence : verdict_of(comparison).sentences)
    text += escape_markdown(sentence) + "\n\n";
  for (const std::string& remark : comparison.remarks) text += escape_markdown(remark) + "\n\n";
  for (const auto& [name, value] : comparison.facts)
    text += "- **" + escape_markdown(name) + "**: " + escape_markdown(value) + "\n";
  if (!comparison.variants.empty()) text += markdown_of(table_of(comparison));
  for (const Note& note : notes_on(comparison))
    text += "- **" + escape_markdown(note.term) + "**: " + escape_markdown(note.meaning) + "\n";
  return text;
}

}  // namespace zero::report
