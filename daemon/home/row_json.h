// SPDX-License-Identifier: Apache-2.0
// Rows of the history as JSON. Private to daemon/home/.
#pragma once

#include <nlohmann/json.hpp>

#include "db/history.h"

namespace gpumem::home {

using Json = nlohmann::ordered_json;

// One line of `gpumem history`: what both halves of the entry say together.
Json history_row(const db::HistoryEntry& entry);
// Everything, for `gpumem show`.
Json whole_decision(const db::Decision& decision);
Json whole_job(const db::Job& job, const std::vector<db::Task>& tasks);
Json margin_json(const db::Margin& margin);
Json margin_change_json(const db::MarginChange& change);
Json scope_json(const db::MarginScope& scope);

// "17", or "20_3" for a task of a job array.
std::string job_name(const db::Job& job);

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
// Empty text is "none".
inline Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace gpumem::home
