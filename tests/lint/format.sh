#!/usr/bin/env bash
# Fails, naming file and line, if a source is not formatted as .clang-format
# says. `tests/lint/format.sh --fix` formats them.
set -euo pipefail
cd "$(dirname "$0")/../.."

mapfile -t files < <(git ls-files -co --exclude-standard '*.cc' '*.cu' '*.h')
if [[ "${1:-}" == --fix ]]; then
  clang-format -i "${files[@]}"
else
  clang-format --dry-run --Werror "${files[@]}"
  echo "format: ${#files[@]} files"
fi
