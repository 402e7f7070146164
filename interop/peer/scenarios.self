# name|server command|client command|what it shows: vt against vt between two kernels.
# A planted_ one must fail, with status 1 on the side that its note names; every other must pass.
ops_v4|$VT -d rxe0 -z 1048576 -w 9|$VT -d rxe0 -w 9 -s $A -o send:all,send_imm:all,send_se:all,send_inv:all,write:all,write_imm:all,read:all,mwwrite:5000,mwread:5000,cas,cas_no,faa,cas@8,faa:8:20@56|every operation at every size
ops_v6|$VT -d rxe0 -g $G6 -z 1048576 -w 9|$VT -d rxe0 -g $G6 -w 9 -s $A -o send:all,send_imm:all,send_inv:all,write:all,write_imm:all,read:all,cas,faa|the same over IPv6
ops_many|$VT -d rxe0 -q 128|$VT -d rxe0 -S -s $A -o write:5000:100,read:5000:100,send:5000:60,send_imm:300:60,write_imm:3000:60,faa:8:50,cas:8:50|many posted at once
ops_wrap|$VT -d rxe0 -P 0xfffffe -z 1048576|$VT -d rxe0 -P 0xfffffd -s $A -o write:all,send:all,read:all,faa|PSN wrap
ops_uc|$VT -d rxe0 -t uc -z 20000|$VT -d rxe0 -t uc -s $A -o send:64,send_imm:5000,write:5000,write_imm:5001|UC
ops_ud|$VT -d rxe0 -t ud -z 4096|$VT -d rxe0 -t ud -s $A -o send:64,send_imm:64,send:0,send:1000|UD
badkey_write|$VT -d rxe0|$VT -d rxe0 -s $A -o write:64,badkey_write:5000=access,write:64=flush|a key that nobody has
badkey_read|$VT -d rxe0|$VT -d rxe0 -s $A -o read:64,badkey_read:5000=access|the same, READ
badkey_cas|$VT -d rxe0|$VT -d rxe0 -s $A -o cas,badkey_cas=access|the same, COMPARE_SWAP
badkey_faa|$VT -d rxe0|$VT -d rxe0 -s $A -o faa,badkey_faa=access|the same, FETCH_ADD
oob_write|$VT -d rxe0|$VT -d rxe0 -s $A -o oob_write:64=access|behind the region
oob_read|$VT -d rxe0|$VT -d rxe0 -s $A -o oob_read:64=access|the same, READ
across_write|$VT -d rxe0|$VT -d rxe0 -s $A -o across_write:3000=access|over the region's end
across_read|$VT -d rxe0|$VT -d rxe0 -s $A -o across_read:3000=access|the same, READ
no_write_right|$VT -d rxe0 -A r|$VT -d rxe0 -s $A -o read:64,write:64=access|a region that is only readable
no_read_right|$VT -d rxe0 -A w|$VT -d rxe0 -s $A -o write:64,read:64=access|a region that is only writable
stale_window|$VT -d rxe0 -w 1|$VT -d rxe0 -w 1 -s $A -o mwwrite:64,send_inv:64,stale_write:64=access|a window after its invalidation
too_long|$VT -d rxe0 -z 100|$VT -d rxe0 -s $A -o send:100,send:101=op/inv_req|SEND longer than the receive
rnr_wait|$VT -d rxe0 -D 60 -N 12|$VT -d rxe0 -s $A -o send:64,send:2000|receives posted late
rnr_over|$VT -d rxe0 -D 5000 -N 10 -E|$VT -d rxe0 -R 2 -s $A -o send:64=rnr|RNR retries used up
loss_server|$NFTIN 5,17,30; $VT -d rxe0 -z 65536|$VT -d rxe0 -T 10 -s $A -o write:20000,send:20000,read:20000|requests lost
loss_client|$VT -d rxe0|$NFTIN 2,7,11; $VT -d rxe0 -T 10 -s $A -o write:20000,send:64,read:20000,faa,faa; $NFTOFF|answers lost
loss_all|$NFTIN 1-999; timeout 9 $VT -d rxe0|$VT -d rxe0 -T 10 -r 3 -s $A -o write:64=retry|everything lost
cm|$VT -C $A -d rxe0|$VT -C $B -d rxe0 -s $A -o send:64,write:5000,read:5000,faa|through rdma_cm
planted_send|$VT -d rxe0|$VT -d rxe0 -X src -s $A -o send:3000|both: one wrong byte in a SEND
planted_write|$VT -d rxe0|$VT -d rxe0 -X src -s $A -o write:3000|both: one wrong byte in a WRITE
planted_region|$VT -d rxe0 -X region|$VT -d rxe0 -s $A -o write:3000|both: one wrong byte where nobody wrote
planted_recv|$VT -d rxe0 -X recv|$VT -d rxe0 -s $A -o send:3000|both: one wrong byte in a receive
planted_guard|$VT -d rxe0 -X guard|$VT -d rxe0 -s $A -o send:3000|both: one wrong byte before a receive
planted_read|$VT -d rxe0|$VT -d rxe0 -X read -s $A -o read:3000|client: one wrong byte in what a READ brought
planted_atomic|$VT -d rxe0|$VT -d rxe0 -X read -s $A -o faa|client: a wrong byte in an atomic's result
planted_status|$VT -d rxe0|$VT -d rxe0 -s $A -o write:64=access|both: a WRITE that should have been refused
