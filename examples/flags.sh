# Arguments of the scripts in examples/: those with a place first, then options in any order.
# shellcheck shell=bash
#
#   source "$(dirname "$0")/../flags.sh"
#   read_arguments WORK SYSTEM SAVE --corpus=news "[options of fairseq-train]" -- "$@"
#
# sets $work, $system, $save and $corpus (news, unless --corpus is given), and the array `more` to all
# other options with their values.  [NAME] may be missing; NAME... is one word or more, in the array
# `names`, and [NAME...] any number.  Without "[options of ...]" other options are refused.  --help
# prints the head of the script.  note_start is for systems that start from another model, and refuse
# for options that the script sets itself.

read_arguments() {
  local _usage="usage: bash ${0##*/}" _places=() _flags=() _others='' _word _name _value
  while [ "$1" != -- ]; do
    case $1 in
      --*)
        _name=${1%%=*} _value=${1#*=}
        _flags+=("$_name")
        _set_flag "$_name" "$_value"
        [[ $_value != *" "* ]] || _value="\"$_value\""
        _usage+=" [$_name ${_value:-VALUE}]" ;;
      "[options "*) _others=yes _usage+=" $1" ;;
      *) _places+=("$1") _usage+=" $1" ;;
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
    else
      printf -v "$_name" %s ''
      [[ ${1:-} != [!-]* ]] || { printf -v "$_name" %s "$1"; shift; }
    fi
  done
  [[ ${1:-} != [!-]* ]] || { echo "error: unexpected argument $1; $_usage" >&2; exit 1; }

  more=()
  while [ $# -gt 0 ]; do
    _name=${1%%=*}
    if [[ $_name = --* && " ${_flags[*]} " = *" $_name "* ]]; then
      if [[ $1 = *=* ]]; then
        _set_flag "$_name" "${1#*=}"
      else
        [[ $# -gt 1 && $2 != --* ]] || { echo "error: $1 needs a value; $_usage" >&2; exit 1; }
        _set_flag "$1" "$2"
        shift
      fi
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

# _set_flag --SOME-NAME VALUE: sets $some_name
_set_flag() {
  local _variable=${1#--}
  printf -v "${_variable//-/_}" %s "$2"
}
