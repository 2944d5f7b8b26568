"""Small squashfs files as mksquashfs 4.5.1 writes them (`-b 4096`), so that unit tests need not start it.

In each: an empty file, one in blocks, one with holes and a tail, a small one under two names, a symbolic link, a name
that is no UTF-8, two devices, a fifo, a socket, and owners beside root.
"""

import base64
import zlib

#: by compression; base 85 of the deflated file without its padding
_PACKED = {
    "gzip": (
        "c-qS-E-dC{fC2#q21W)D=3zL%#LB<|WUpj|NWEo+&`+WCe<;vmf$(2J>4{MJ<50TdR&qj0Qd(ka^798z9zA>b^s%^rh>)0|sPOa&QzlK"
        "DICXM(KuAznU}*653s){(yLk1oxq*q1nW3ri_6=J$ZQHnYb9q5YQCVSW@%Im3K7IT6^)o*Q4;LRNFL!@OPgh@OZ@0gPkC&gPulM;AXHK"
        "0vdG@rvhK`n=rmpt-6>C<lTe)_1enw7KUS@9g`xkFsy?gog^?ZZEOHVX|m;25)EWY-}viSMg_zeXYAE|mz*Nxv;boG^K_Vu;*HxyoerW"
        "?II_x{G>>+fu<zrVFF_;BH&vU|U*ec`7oFOAdB&)r|}@zPW6@b$6#3qN0bYhC{SZvBT37ayzp&$q4r`046v^ZfgJ|9|*+`MG}l{@VW^K"
        "VN@uU;qDay2RK2EB?FxwSV<L@PGfW`YZnz|C2`*V)-G@kg)DY)@aa;1|5xpj^)>W6+>fo2D8||H!5zuJ!lBb<s1hVv|hdbZ@Fs&69YrT"
        "t=a4XlNc>>5=%1kigOcla=7+^@^Vtdp%V<O3T{jS|Jj)Y=DRjG9-JlERN63u(^FTNSu24x$*+yIrzb!%OvTd7WUG%yl|z}K(Vo`Xr<<0"
        "zv31Nm_|EBsvGT=LJd=3#B-lzzBpT%e)N>RyoT)g?dHFcs(!{!ChTY;1<@qMe4LCjZ?}8@2j)KOQ&e!;vHzj=klb+JJYo72bc9+*LUrt"
        "vMTe^JO2BVzj=wqy*2hMO56)@Xe*s<`@8;>NL0K+E^4_vug_}H@9>=bwz8uC;gO$NH(wD&acAp-%I;~RgnL@gBH%RHpQrjtL%qm9{JC2"
        "9e)*Fqkt1?+r1z7d&Q_M7iMpr01v9BQzE{q^EmVr{zucb4-8s|Dq|zUurjS+xI6N`~_-5ue3de}8WdRokV0z3uS1<sT01xl{PJVpq)uj"
        "kARU)3;@Lx;fYI#9jT8ab)v}(6uivO8kBCF3Y#u?a_MuV}i1Z0uA!ef|DCk_A=B%3r-zy(b>QttFf2GYr8|HyhbgH*Zsyz^$WJJE4Q3$"
        "xzrm_r8Omvb19?uEw)WFp}IsGKqQF64#aFg{DPT*;XEq<;|$`F"
    ),
    "xz": (
        "c-qS-E-dC{fC2#q21X#o!ob6DfQc1IGcc@Vgh*XvgU~0T^nWPmW`XcaSs}D1RDLy-{%c+p5d}0hQ|X==^MOvL1_ed1iN_0tzC7Un&&U`"
        "H<OBt9wfvmDsX=jN<~8*Pc5G4cEWN>3Saw;4vvM8`Rk=5JM`5I4!ovAK^F50{op{x=OR8HlQ?cQnadX;wx7;`LI=i@=KiKef_SwIUe?D"
        ")*O_~2jUp76k4BT`{M0Cs1!d<u79#_tqzuV&A28K10xmU4CG7E8tM$bOs@xe&%pYDS86Caj5xD@!hH$809Cf}B$AKMJ?XC*}+s?@#t-K"
        "Ka~NeTN6o0VZoDhtzoM76{lq+j~x?WtF<@cQ--0lp~}<;U%_-)}iP^-=yempr!f+)YxaZ&!T?@15~~!U4Ny2ZbC<-!W@UdoBEXxyG6GM"
        "!T2rseX#saPLN#OxlM>(x$O}^J75a(WEeO5d-5~VE8aF{4T0IYiGdQ%><HQjEou$Lu!X%GgFHIBn+2%NuGbe!OZY`B!*#__3om*Vp6Xg"
        "7#M0!hi_(JoDK{Z28Jl**T->(oyuYvNYF8~KKQ@?0iP0s3^45S|Nj5Kc>8~MI}gz!%f!GPlQf>?evFiCGO=J_I8oy^k%7@-u?$d8O^gW"
        "}ve`L_C7F4}xrsSBTrbcHi*<}AnH3p93ZJJ>V0yrKf?-)KuzV8P`cmzBrNn)2lREuV{MJl2rb-J7?Q5Q(c`?InlEz%oP5tv~Om|NRcpf"
        "diePw{>p=eQu))njIZoVm><7)0A<=}I2O4;di{hxRr#ouxDFkJnf$-Lr?3e%FSP1%93WM8#39BV#i{6uH5<>Gw@-e=sexb42=_P@WzJ!"
        "|=r`!q~${5WHnUU@+3vkO-}Lu})p;Me7yF?vm$YnHk1ey;cHNdea^u2UvJH?OLmUe3UH2<Qg}2KHF7)ySSc&;ToOL8Yb-5HkS_+r;$5%"
        "sgmu3od(G7$D_wst=F?sQ`x)CsYMYB@@t)q@4WZ>|!0TGG>P4#I%=7fGm)Tlp_qFf}EKlC9^pD4g(w5oYdTclFB~}>|jnteokt!2O|ei"
        "4KqVdW?ptCBPUP~Gecf!PEI2u7f=r~LqTRi>QqK<pcZC^VxV0D4GqwOpBw5Db7+Adff9>M2h=k_aai2fUHpI{ok1R$RI)m&UI~W?8NG0"
        "DR6O{@h^gfX<5_KXDd{7=M<&?JU|`tBqPm!Y(LAH{&x_9!oM!SeLPISOYJ*4vEacdM7$o=t7{;5~0EXd(nE"
    ),
    "zstd": (
        "c-qS-E-dC{fC2#q21X#o#=ygHfQglX1;}2>2$5=Ih0t|S`acvLV21D;Ss=6~R6YSpYi!m3o4~*y%E7=Qz`)4F%)-jX&cVsW&BM#bFCZu"
        "+EFvl<E+Hu;Eh8%@ub`-;tfH!>uA!-=t)r`_Z(wL-Y+`C=ZeeL<ZDVU^@8Ia<?BeR??&0a>?c?j`9}pN691<E99uXN89TOWDpOBc8oRX"
        "TBo{^cAos*lFUr<<7TvA$AUQt<9T~k|E-_Y39+|t_C-qG3B-P7CGKVjme$y26In?7Uatl4ws&YQnr;iAP$mM&YqV&$sUYu2t?zhUF1&0"
        "Dr^+rDGxuHAd~?%RLh;Gx4ujvhOH;^e8*XU?8Gf8pY#%U7;myME*5t=o6*-n;+c;iJb-o<4j2;^nK?Z{EIp|Ka1O&tJZN`~KtSuit<E{"
        "`(IM%D-|Su8WL@363yfVK3!ia2fGoQj(aN0}2<uKiOR1a8c%sWnfTXNX<)OWRUsRD3Fs_l9^YWo0yZswI7nhPBN@zWq2l_s60V?Eu;PK"
        "|Mu(tueu+5H)`_5A6tG!{IyNZmb!55E{9@u{!Atb1`#0q@1Xx{^`#f9%jdie{HpqHLv!tmDfeH8F#f+>&m79kv;S-5CSfhJYuClY>%a9"
        "Mzy1F0<~L5)1^<8d{wI8FzXkgi{hm7l@0wqh9}ItQvNZp%+>ia|HIjEGXi0hqF(h!bTn*iAn0MgLwyQf<O5VLb<D+irQ2~il_oX*6tFS"
        "%zaO$n*yt|By1x5>4r+_`6a3Ge2A;?Q!VZmzV{c-=-oto>=cksU|=T7UoK6}1Z{QtwB|2%mw`jkj$=ezsO;yu2dUiIvL8&Y*y|Jv3iL@"
        "8$d|EKq%aCz^X!{3|Bud3L7{!sfMdT+^3>zX~={yhI~+&A&m{ogf@!&En&eEhq4>!+RV?>|rcIsbqB|A&%`Hcf1Q|Nq4QA1n;Mf(#OR5"
        "{k@D0u5WC1sgY{Ok@y;7HGN<_hzUvGOS?GS<>Qj<jx-t#>~d4u#%Ezg}?{C2eJYx@*ksim>5E}i8O#n5QiOH!ZI+t09ug23IO%-a4-"
    ),
    "lzo": (
        "c-qS-E-dC{fC2#q21X#o%)rBNfPs~P1;}2>2$5RN3ZWN6>Hko0ff>SI!~&uHq4KRzn&BM-BNH<VD;qlpCl@ylFCV{vppdYLsF=8fq?ELbtem`p"
        "qLQ+Ts+zinrk1vjuAaVup^>qPshPQjrIodft)0Dtqm#3XtDC!rr<b>nub+QFU{G*KXjpheWK?uaY+QUoVp4KSYFc_mW>$7iZeD&tVNr2OX<2zi"
        "WmR=eZC!msV^ecWYg>CqXIFPmZ(sj}iIXNznL2IyjG41$&zU=K{(^;z7B5-4Z25|nt5&aByKeo4jhi-a*}84}j-9)9@7cR=|AB*t4j(ys?D&b3"
        "r%s<ad+z*&i<d56xq9vTjhnY_-?@A5{)2~)9zS{d?D>nAuU@}-`|kaRkDoq&`TFhqkDtGO|M~mxzXCKMp8a8lGN1lo790(k(U2h+GQi+qEJ@7F"
        "0fvbX13a`CU`!TfhSa<ipkz*BNoHPgZemUj*98VKCWa-9!2FxYnBdFs-+`fykwt@#L5guLgNP4<);b0z1|3EQRv!i?PKE`Hj7OPSHFFu*bk{O4"
        "X`W%o=VfGgs~*e9qS?zJ<IBK2M@XZVfmu_Afk~A?l7Y96Z3E*|X1040f*g4qZ#n<6vEN~ME6p%RRKtcjij`r-C2nQEi%bq0F)V-BwEi$WWRRUN"
        "_@9yGsyOEvwi*UbJw5%B#G>@n5>|$7>Khrk4zVyZCW<wvUu5CF%fznf%fNGnNlTE0S5tt6se{3qfiH#u=($-yzaL~^^=0t!VPIzh7D|cfiJ5tf"
        "2bo!X8CraR-b?j~U`SzM2K%4$2+LDerT`9>q@4WZ>|&i6EWkiYPE32b#Dy`9CFMvYGfMyyOG;*O_8kVcIUKC1xdkPae;C*&FtTRk=cE>UFmm_<"
        "b>y%sWM?vRO0fDd=9Mx_H!^bhu(2^S6l4~pPG#iw1~Q9%c!6%?XAn8c%+Scd&B?%619Ge#wAj-DJ6h*1!;-rUEq57w?lK&?%W&r|!=HN$9*lb#"
        "GVd}p-es72mto}{kgjm3E|CTh3F5E=F&hxS02Z&ktN`Jj59|"
    ),
    "lz4": (
        "c-rk$`CC*~7=F)PX6~>F&L|A1;JB6uD3XS#xHcBrklE%szzA0^!!m;#rWeJ1DO1X|tf(NQAjvE@RK%s!NG&ZicOgXqcO}PjXT~4=$$!A}Jm2$v"
        "=bZ0++j+h>#g=LFhI{z}gaQvQRB${vsuvO0Rcn<Cecb49uWHt{zs|XE6Ys(XHwv=b0UV7W49oE<wV?6v^z!y;;p^8@t83NTKR_QC)TV8_;E?u)"
        "4jnsn?$Y&z7rTXa4-1dz(KE7F)Jwhlyd2#(reFU7u>%JU9x`;;E5_lkz7{uP<m;yRH%7fV`mML$dH20BW5<o3FwvZlm}HrhoFYz6mC~%~8JSr&"
        "d-jy6)27eJnfd;#*>dijxq0*EFIc!}@sg#>mVfZ!ijP*V%K!M2)oa$STfgDc&o+Mk#g_$Nef>>g(YM8$O1}HPwCsn?<v(uuY3t9wY}>wL=dOy~"
        "d-hiDtJ;6y;GtiCJACBm@6~@CJAUHNzfPX|`=6TAXZ}5V?)-&|mo8tat^4olwfgHf8XB8!-nxC~?!EgD9yb5~$N}PbYTYq8kDoW@d1Ic@m?o3M"
        "ZWg6rI-XB=D!>F-tVxpDE?RAAW=Zl0BBK}-5M_`xkSDuGRf`0!E1)MFjDGYg6uwM*s2QwO=2U}?gaj({&oR)cG+-Gp1~44~2@wSKIrJmo$ElQ~"
        "_%`$fyBewxCt)yj#u48MdU*GOp_H@)BLO22;wKD2NWDg<nE0xBsB09>U(*beKs}U<Mm&WMBh`oiVtFvMltNJI;RFaYn!XT`4#MpOvVlA$N<~;$"
        "xZRwUY_ap$qI0I?aRRY48&ZZ=aum^e2EbpfgVsw2fhV}_Os^F3LiB|XjaCdTZOlzpDLM|yEeCV5S+o*8WQD=<oGdud5(i>HqO+qK0}!Z~mNAqW"
        "6QuOSR9k2ltYDF7o>W%=CI*cpsS*lbvPcqbsWng;k!wlIuupG>+8Yg>Q_>}i%}4}lz(NwOsUp$P2P~}Fl9Wq4prU$)m|@8$o={WWMx(Sqk1Cd?"
        "D|@<V8SC7f8ttq?8!A9sKqZe#9F<BcHB_1f7>v}vR-~I;D)|EBCp=#6_MwyEWO~qWfI{lEl*#Y$j{(;qGTH"
    ),
}


def sample(compression: str) -> bytes:
    """The file, padded as mksquashfs does."""
    data = zlib.decompress(base64.b85decode("".join(_PACKED[compression])))
    return data + bytes(-len(data) % 4096)
