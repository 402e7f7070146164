# Every field of what both say, as it was on the wire: rping, udaddy, an end and a refusal, each once in both directions.
# The same names in the same order, and other values only where they name something of the sender.
# shellcheck shell=bash disable=SC2034,SC2154
fields() {
    local wire=$share/fields.pcap dump tool
    for tool in tcpdump tshark; do
        command -v $tool > /dev/null || { echo "fields of both are not compared: $tool is not installed"; return; }
    done
    for family in 4 6; do
        tcpdump -i peer0 --immediate-mode -U -s 0 -w "$wire" udp port 4791 2> "$share/dump" & dump=$!
        until grep -q listening "$share/dump"; do sleep 0.05; done
        both "fields: rping" "rping -s -a @ -C 3" "rping -c -a @ -C 3" '' ''
        both "fields: the client disconnects" "$hears -b @ accept" "$hears -s @ -x 0" '' ''
        both "fields: udaddy" "udaddy -b @" "udaddy -s @" '' ''
        both "fields: a refusal" "$hears -b @ -d no refuse" "$hears -s @ -d please" '' ''
        sleep 0.2
        kill $dump; wait $dump 2> /dev/null
        dissect "$wire"
        compare_all
        flow_labels
    done
    family=4
}
compare_all() {
    local ids='Local Communication ID|Remote Communication ID'
    # tshark divides the word of flow label and packet rate at the wrong bit, hence the reserved field.
    local path='Primary (Local|Remote) Port GID|Primary Flow Label|Reserved|Primary Packet Rate'
    compare 0x0010 REQ "$ids|Local CA GUID|Local QPN|Starting PSN|$path|IP CM (Source Port|Source IP|Destination IP)" 441-552
    compare 0x0013 REP "$ids|Local QPN|Starting PSN|Local CA GUID" 161-552
    compare 0x0014 RTU "$ids" 105-552
    compare 0x0012 REJ "$ids" 105-552
    compare 0x0015 DREQ "$ids|Remote QPN/EECN" 113-552
    compare 0x0016 DREP "$ids" 105-552
    compare 0x0017 SIDR_REQ RequestID 97-124,193-552
    compare 0x0018 SIDR_REP 'RequestID|Q_Pair Number' 97-104,111-552
}
# For each sender and attribute the first message: its fields, a name and a value each, and its bytes.
dissect() { # CAPTURE
    rm -rf "$share/fields"; mkdir "$share/fields"
    tshark -r "$1" -V 2> /dev/null | awk -v folder="$share/fields" '
        / Source Address: / { sender = $NF }
        /MAD Header/ { within = 1; text = "" }
        within { sub(/^ *([01. ]+ = )?/, ""); text = text $0 "\n" }
        within && /^Attribute ID: / { attribute = $NF }
        within && /^Invariant CRC/ {
            within = 0; file = folder "/" sender "." attribute
            if (!(file in seen)) printf "%s", text > file
            seen[file] = 1
        }'
    tshark -r "$1" -T fields -e ip.src -e ipv6.src -e infiniband.mad.attributeid -e udp.payload \
        2> /dev/null > "$share/fields/bytes"
}
bytes_of() { # SENDER ATTRIBUTE DIGITS
    awk -v sender="$1" -v attribute="$2" '$1 == sender && $2 == attribute { print $3; exit }' "$share/fields/bytes" | cut -c"$3"
}
# Of what tshark does not show, or not as a whole, digits of the packet's bytes must be the same: private data, without the
# header of addresses that it begins with, and of messages for datagrams all but their ids and numbers.
compare() { # ATTRIBUTE MESSAGE "NAMES OF WHAT MAY DIFFER" DIGITS
    local here there name="fields: $2, ours and the kernel's, IPv$family" others
    here=$share/fields/$(here_at).$1 there=$share/fields/$(there_at).$1 said=/dev/null
    touch "$here" "$there"
    # One after the other; a name that is another one differs in any case.
    others=$(paste -d '\n' "$here" "$there" | awk -F ': ' -v may="^(Transaction ID|MAD Data Payload|Invariant CRC|$3)$" '
        NR % 2 { line = $0; name = $1; next }
        line != $0 && !($1 == name && name ~ may) { print "ours: " line ", theirs: " $0 }')
    [ "$(bytes_of "$(here_at)" "$1" "$4")" = "$(bytes_of "$(there_at)" "$1" "$4")" ] || others+="other bytes differ"
    [ -s "$here" ] || others+="nothing was captured"
    if [ -z "$others" ]; then fine "$name: $(wc -l < "$here") fields"; else bad "$name" "$others"; fi
}
# 20 bits, 31 times the source port and the destination port, and then no packet rate.
flow_labels() {
    local sender word source expected why=
    for sender in "$(here_at)" "$(there_at)"; do
        word=0x$(bytes_of "$sender" 0x0010 265-272) source=0x$(bytes_of "$sender" 0x0010 373-376)
        expected=$(((31 * source + port) % (1 << 20) << 12))
        [ $((word)) -eq $expected ] || why+="$sender: $word with source port $source, not $(printf '%#x' $expected). "
    done
    said=/dev/null
    if [ -z "$why" ]; then fine "fields: flow labels of both, IPv$family"; else bad "fields: flow labels, IPv$family" "$why"; fi
}
