# Arguments of the scripts in examples/: those with a place first, then options in any order.
# shellcheck shell=bash
#
#   source "$(dirname "$0")/../flags.sh"
#   read_arguments WORK SYSTEM SAVE --corpus=news "[options of fairseq-train]" -- "$@"
#
# sets $work, $system, $save and $corpus (news, unless --corpus is given), and the array `more` to all
# other options with their values.  [NAME] may be missing; NAME... is one word or more, in the array
# `names`, and [NAME...] any number.  Without "[options of ...]" other options are refused.  --help
# prints the head of the script.  note_start is for systems that start from another model, refuse for
# options that the script sets itself, and made_alike for folders that keep their options.
#
#   read_arguments "[SLOT...:number]" --updates:count=1000 --beams...:count="4 1" --device:cpu/cuda=cpu -- "$@"
#
# After ":" is what values have to be (see check); --NAME... is a list with spaces between its words.

read_arguments() {
  local _usage="usage: bash ${0##*/}" _places=() _others='' _word _name _value
  local -A _kinds=()
  while [ "$1" != -- ]; do
    case $1 in
      --*)
        _value=${1#*=} _word=${1%%=*}
        _name=${_word%%[.:]*}
        _kinds[$_name]=${_word#"$_name"}
        _set_flag "$_name" "$_value"
        [[ $_value != *" "* ]] || _value="\"$_value\""
        _usage+=" [$_name ${_value:-VALUE}]" ;;
      "[options "*) _others=yes _usage+=" $1" ;;
      *)
        _word=${1%%:*}
        [[ $1 != "["*:* ]] || _word+=]
        _places+=("$_word") _usage+=" $_word"
        _value=${1%]}
        [[ $1 != *:* ]] || _kinds[$_word]=:${_value#*:} ;;
    esac
    shift
  done
  shift
  for _word in "$@"; do
    [ "$_word" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
  done

  for _word in "${_places[@]}"; do
    _name=${_word//[].[]/}
    _name=${_name,,}
    if [[ ${1:-} != [!-]* && $_word != "["* ]]; then echo "$_usage" >&2; exit 1; fi
    if [[ $_word = *...* ]]; then
      local -n _list=${_name}s
      _list=()
      while [[ ${1:-} = [!-]* ]]; do _list+=("$1"); shift; done
      _check_list "${_word//[].[]/}" "${_kinds[$_word]:-}" "${_list[@]}"
    else
      printf -v "$_name" %s ''
      [[ ${1:-} != [!-]* ]] || { printf -v "$_name" %s "$1"; shift; }
    fi
  done
  [[ ${1:-} != [!-]* ]] || { echo "error: unexpected argument $1; $_usage" >&2; exit 1; }

  more=()
  while [ $# -gt 0 ]; do
    _name=${1%%=*}
    if [[ $_name = --* && -n ${_kinds[$_name]+declared} ]]; then
      if [[ $1 = *=* ]]; then
        _value=${1#*=}
      else
        [[ $# -gt 1 && $2 != --* ]] || { echo "error: $1 needs a value; $_usage" >&2; exit 1; }
        _value=$2
        shift
      fi
      if [ -n "${_kinds[$_name]}" ]; then
        local _values=("$_value")
        [[ ${_kinds[$_name]} != ...* ]] || read -r -d '' -a _values <<< "$_value" || true
        [ -n "${_values[*]}" ] || { echo "error: $_name needs a value; $_usage" >&2; exit 1; }
        _check_list "$_name" "${_kinds[$_name]}" "${_values[@]}"
        _value=${_values[*]}
      fi
      _set_flag "$_name" "$_value"
    elif [ -n "$_others" ]; then
      more+=("$1")
    else
      echo "error: unknown option $1; $_usage" >&2
      exit 1
    fi
    shift
  done
}

# note_start: say so where $system would train from random parameters
note_start() {
  [[ " ${more[*]}" = *" --finetune-from-model"* || " ${more[*]}" = *" --restore-file"* ]] ||
    echo "note: $system starts from random parameters; for parameters of the first stage give" \
      "--finetune-from-model CHECKPOINT" >&2
}

# refuse --SOME-NAME ...: end if one of these options is in `more`, because the script sets it, or
# would read its result wrongly
refuse() {
  local _word _name
  for _word in "${more[@]}"; do
    for _name in "$@"; do
      if [[ ${_word%%=*} = "$_name" ]]; then
        echo "error: ${0##*/} does not accept $_name; leave it out" >&2
        exit 1
      fi
    done
  done
}

# refuse_for_results --SOME-NAME ...: the same for a script that reads what fairseq-generate writes, of
# all translations, so also for shares of them
refuse_for_results() {
  refuse --gen-subset --results-path --quiet --score-reference --num-shards --shard-id \
    --distributed-world-size --distributed-rank "$@"
}

# made_alike RECORD WORD ...: succeeds if the folder of the record was made with these words, which the
# script writes there, and fails without a record; ends if the folder was made with others
made_alike() {
  local _words
  [ -e "$1" ] || return 1
  _words=$(cat "$1")
  [ "$_words" = "${*:2}" ] || {
    echo "error: ${1%/*} was made with other options (${_words:-none}); give another folder" >&2
    exit 1
  }
}

# check NAME KIND VALUE: end if the value is not a count (a whole number from 1), a number (from 0), a
# positive number, a share (from 0 to 1) or, for other kinds, one of WORD/WORD/...
check() {
  local _wanted
  case $2 in
    count)
      _wanted="give a whole number from 1"
      [[ ! $3 =~ ^[1-9][0-9]{0,17}$ ]] || return 0 ;;
    number)
      _wanted="give a whole number from 0"
      [[ ! $3 =~ ^(0|[1-9][0-9]{0,17})$ ]] || return 0 ;;
    positive)
      _wanted="give a number above 0"
      [[ ! $3 =~ ^[0-9]*\.?[0-9]+$ || ! $3 =~ [1-9] ]] || return 0 ;;
    share)
      _wanted="give a number from 0 to 1"
      [[ ! $3 =~ ^(0|0?\.[0-9]+|1(\.0+)?)$ ]] || return 0 ;;
    *)
      _wanted="choose ${2//\//, }"
      [[ $2 != */* ]] || _wanted="${_wanted%, *} or ${2##*/}"
      [[ $3 = */* || /$2/ != */"$3"/* ]] || return 0 ;;
  esac
  echo "error: $1 is $3; $_wanted" >&2
  exit 1
}

# _check_list NAME [...][:KIND] VALUE ...: check all, and that none is there twice
_check_list() {
  local _value _seen=' '
  for _value in "${@:3}"; do
    [[ $2 != ...* || $_value != *,* ]] ||
      { echo "error: $1 is $_value; put spaces where it has commas" >&2; exit 1; }
    [[ $2 != *:* ]] || check "$1" "${2#*:}" "$_value"
    [[ $_seen != *" $_value "* ]] || { echo "error: $1 has $_value twice; give it once" >&2; exit 1; }
    _seen+="$_value "
  done
}

# _set_flag --SOME-NAME VALUE: sets $some_name
_set_flag() {
  local _variable=${1#--}
  printf -v "${_variable//-/_}" %s "$2"
}
